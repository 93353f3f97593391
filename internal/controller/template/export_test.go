package template

import "sigs.k8s.io/controller-runtime/pkg/handler"

// HostHandler is the handler of hosts' events.
func HostHandler(r *Reconciler) handler.EventHandler { return r.hostHandler() }

// ClusterHandler is the handler of Clusters' events.
func ClusterHandler(r *Reconciler) handler.EventHandler { return r.clusterHandler() }

// Remembered is how many templates' times the reconciler keeps.
func Remembered(r *Reconciler) int { return len(r.pace.last) }
