"""kproxy as a sidecar: an admission webhook of Kubernetes adds it to pods that ask for it."""
