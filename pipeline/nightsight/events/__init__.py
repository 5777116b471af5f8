"""Facts of a capture that every stage needs: which call launched what, the window, how things are named."""
