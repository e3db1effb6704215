// Tags and a note of a run: shown below its name, and changed in a small form.

import { byId, fill, make, send } from "/static/shared.js";

export const chips = (tags) => tags.map((tag) => make("span", { class: "tag" }, tag));

export class TagEditor {
  constructor(run) {
    this.run = run;
    byId("edit-tags").addEventListener("click", () => this.open());
    byId("cancel-tags").addEventListener("click", () => this.close());
    byId("tag-form").addEventListener("submit", (event) => { event.preventDefault(); this.save(); });
  }

  show({ tags, note }) {
    this.known = { tags, note };
    fill(byId("tags"), tags, () => chips(tags));
    if (byId("note").textContent !== note) byId("note").textContent = note;
    byId("edit-tags").textContent = tags.length || note ? "Edit tags and note" : "Add tags or a note";
  }

  open() {
    byId("tag-form").hidden = false;
    byId("edit-tags").hidden = true;
    byId("tags-input").value = this.known.tags.join(", ");
    byId("note-input").value = this.known.note;
    byId("tag-problem").textContent = "";
    byId("tags-input").focus();
  }

  close() {
    byId("tag-form").hidden = true;
    byId("edit-tags").hidden = false;
    byId("edit-tags").focus();
  }

  async save() {
    const tags = byId("tags-input").value.split(",").map((tag) => tag.trim()).filter(Boolean);
    try {
      this.show(await send("tags", { run: this.run }, { tags, note: byId("note-input").value.trim() }));
      this.close();
    } catch (error) {
      byId("tag-problem").textContent = error.message;
    }
  }
}
