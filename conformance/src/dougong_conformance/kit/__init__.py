"""What judges: the error law, oracles in float64, inputs. Imports torch and numpy alone."""
