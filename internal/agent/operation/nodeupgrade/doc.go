// Package nodeupgrade upgrades Kubernetes on a Node in place, to a bundle. kubeadm must
// have set up the Node.
//
// The steps are stage, check, checkpoint, kubeadm, drain, kubelet, gate and finish. The
// operation's document has the step that may have been begun; each step can be repeated,
// so an agent that starts again resumes. Only kubeadm runs in a process that outlives the
// agent, and at most one of it runs.
//
// The way back depends on one fact, which the document has: whether an API server of the
// new version has been ready on this host. Until then everything that kubeadm changed is
// put back. After that objects may exist that the old version can't read, so only the
// kubelet goes back, which may be older than its API server. etcd's data is never put
// back.
//
// While the static Pods of the endpoint's host are replaced, clients of the control plane
// endpoint are redirected to another API server.
//
// The message of an upgrade that failed begins with a protocol.UpgradeOutcome.
package nodeupgrade
