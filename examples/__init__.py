"""Small environments that show one thing each: `pronk train examples.environments:Name`."""
