// Package reject refuses connections to a former control plane endpoint at the
// host that has its address: TCP resets, so that clients which hold on to it
// connect anew, elsewhere. The host itself may go on. It is a table of nftables
// of its own, replaced and deleted as a whole.
package reject
