"""What every engine does to text: templates in, characters, stop strings, tool calls and constraints out."""
