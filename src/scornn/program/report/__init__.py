"""Figures and the HTML page: of training runs, and of what is set beside the paper."""
