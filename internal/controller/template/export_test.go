package template

import "sigs.k8s.io/controller-runtime/pkg/handler"

// HostHandler returns the handler of ElementalHost events.
func HostHandler(r *Reconciler) handler.EventHandler { return r.hostHandler() }

// ClusterHandler returns the handler of Cluster events.
func ClusterHandler(r *Reconciler) handler.EventHandler { return r.clusterHandler() }

// LimiterLen returns the number of templates in the limiter.
func LimiterLen(r *Reconciler) int { return len(r.limiter.last) }
