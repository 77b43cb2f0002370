"""What OpenAI's clients speak: requests read and checked, answers and streams written."""
