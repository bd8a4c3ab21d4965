"""The client's answers to a server's questions: elicitation, sampling, roots."""
