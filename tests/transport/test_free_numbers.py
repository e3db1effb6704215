"""Numbers that coroutines take and give back: in order, and none is lost to a coroutine that is cancelled."""

import asyncio

from pronk.transport.free_numbers import FreeNumbers


def test_the_number_that_was_given_back_last_is_taken_first():
    async def play() -> list[int]:
        free = FreeNumbers([3, 2, 1])
        first = await free.take()
        free.give_back(first)
        return [first, await free.take(), await free.take(), await free.take()]

    assert asyncio.run(play()) == [1, 1, 2, 3]


def test_who_waits_is_served_in_order():
    async def play() -> list[int]:
        free = FreeNumbers([])
        waiting = [asyncio.create_task(free.take()) for _ in range(3)]
        await asyncio.sleep(0)
        for number in (7, 8, 9):
            free.give_back(number)
        return await asyncio.gather(*waiting)

    assert asyncio.run(play()) == [7, 8, 9]


def test_a_number_assigned_to_a_cancelled_coroutine_is_free_again():
    async def play() -> int:
        free = FreeNumbers([])
        waiting = asyncio.create_task(free.take())
        await asyncio.sleep(0)
        free.give_back(7)  # assigned, but the coroutine has not run since
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert waiting.cancelled()
        return await asyncio.wait_for(free.take(), 1)

    assert asyncio.run(play()) == 7


def test_a_coroutine_that_stopped_waiting_gets_nothing():
    async def play() -> int:
        free = FreeNumbers([])
        gone, waiting = (asyncio.create_task(free.take()) for _ in range(2))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.sleep(0)
        free.give_back(7)
        return await waiting

    assert asyncio.run(play()) == 7
