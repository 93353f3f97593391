package explain

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/remedy"
)

// restores adds what the restores of the cluster's etcd wait for, or why they have failed. A restore that has not ended
// may be the reason for a pause of the Cluster.
func (e *Explainer) restores(ctx context.Context, r *Report) error {
	list := &infrav1.ElementalEtcdRestoreList{}
	return each(ctx, e.Client, list, func() error {
		for i := range list.Items {
			restore := &list.Items[i]
			if restore.Spec.ClusterName == r.Name {
				r.restoreProblems(restore)
			}
		}
		return nil
	}, client.InNamespace(r.Namespace))
}

func (r *Report) restoreProblems(restore *infrav1.ElementalEtcdRestore) {
	object := "ElementalEtcdRestore " + restore.Name
	s := remedy.Subject{Namespace: restore.Namespace, Cluster: r.Name, Restore: restore.Name}
	if p := restore.Status.Plan; p != nil {
		s.Host = p.HostName
	}
	switch c := meta.FindStatusCondition(restore.Status.Conditions, infrav1.RestoredCondition); {
	case c == nil:
		r.unseen(object)
	case c.Status != metav1.ConditionTrue:
		r.problem(object, *c, s)
	}
}
