"""The forms in which a report is given: a table, HTML, JSON, JUnit's XML and SARIF."""
