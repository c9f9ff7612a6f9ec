"""What every engine in a process of its own has: the child's side here, the side of the process that hosts it in `parent`."""
