"""How work is divided and who does it: tasks, and the engines that run a function over them."""
