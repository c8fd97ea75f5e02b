"""kproxy as a sidecar of pods that ask for it: an admission webhook of Kubernetes."""
