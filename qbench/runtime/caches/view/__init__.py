"""Views: the tokens that each query sees, and the code that reads them. Open `view.View` first."""
