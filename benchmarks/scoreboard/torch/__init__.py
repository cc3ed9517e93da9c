"""Networks, their training, shifts of images, and attacks, in torch."""
