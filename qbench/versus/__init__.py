"""One model file through this project and through another, in turn, on the same machine at the same time."""
