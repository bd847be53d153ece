"""Support vector machines: the quadratic program, Laplacian kernels, landmarks, elimination criteria."""
