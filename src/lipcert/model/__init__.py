"""What is spoken of: networks, their activations, regions of inputs."""
