"""How texts are written token by token: rules, searches and the loop that drives a model; numpy but for `model_writer`."""
