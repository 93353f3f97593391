// Package scope holds what the parts of the ElementalCluster controller share: the
// objects of one reconcile, the outcome for the control plane endpoint, caches,
// reads of hosts and of the control plane's machine template, and the write of spec. It decides nothing, and
// sets no conditions.
package scope
