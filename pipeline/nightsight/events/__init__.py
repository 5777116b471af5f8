"""Facts about a capture that every stage needs: which call launched what, the window, and names."""
