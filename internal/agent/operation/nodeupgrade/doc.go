// Package nodeupgrade upgrades a Node in place: Kubernetes, to a bundle, or the operating
// system below it, to an image. kubeadm must have set up the Node.
//
// The steps to an image are check, image, drain, reboot, gate and finish. The new image is
// deployed beside the running one, and the boot loader falls back to that if it does not boot.
//
// The steps to a bundle are stage, check, checkpoint, kubeadm, drain, kubelet, gate and finish. The
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
