// Package local serves the control plane endpoint on this host itself: the host resolves
// the endpoint's name to its loopback address by a line in /etc/hosts, and the forwarder
// listens there (package forwarder).
//
// An Endpoint records the endpoint before it changes anything, so that a reset can remove all
// of it. From then on it maintains the endpoint without a plan and without a manager: the
// line returns when somebody rewrites the file, and the forwarder when it ends. Only Remove
// ends that. A plan without an endpoint, such as that of a manager which has just been
// restored, must not cut the kubelet off.
package local
