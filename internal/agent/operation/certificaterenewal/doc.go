// Package certificaterenewal renews the certificates that kubeadm has made for the control plane
// of the host, and has its programs use them. Authorities stay as they are.
//
// The steps are check, checkpoint, renew, restart, gate and finish. The operation's document has
// the step that may have been begun; each step can be repeated, so an agent that starts again
// resumes. kubeadm does not write its files atomically: the step renew begins with the files of
// the checkpoint, so a power cut leaves nothing that kubeadm can't read.
//
// If the control plane is not well with its new certificates, the former ones go back. They may
// have ended by then; a person then finds the host as it was.
//
// The message of a renewal that failed begins with a protocol.RenewalOutcome.
package certificaterenewal
