package cluster

import "sigs.k8s.io/controller-runtime/pkg/handler"

// HostChanges is what wakes clusters when hosts' failure domains change.
func (r *Reconciler) HostChanges() handler.EventHandler { return r.hostChanges() }
