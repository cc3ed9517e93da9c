"""What is said about predictions, and why: assessments, explanations, pictures."""
