"""Places: the pages of a storage that hold each sequence. Open `places.Places` first."""
