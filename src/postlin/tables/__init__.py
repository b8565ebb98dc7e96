"""Tables as they are: what their columns hold, and rows of numbers made from them."""
