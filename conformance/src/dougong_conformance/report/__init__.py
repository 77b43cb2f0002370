"""What a run is told as: JSON, Markdown, HTML, JUnit, badge; comparison and certificate."""
