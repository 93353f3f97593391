package conditions

import (
	"context"
	"fmt"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// Clusters are the conditions of ElementalClusters by name.
type Clusters map[string][]metav1.Condition

// OfClusters reads the conditions of the ElementalClusters of a namespace.
func OfClusters(ctx context.Context, admin client.Reader, namespace string) (Clusters, error) {
	all := &infrav1.ElementalClusterList{}
	if err := admin.List(ctx, all, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("reading the conditions of clusters: %w", err)
	}
	conditions := Clusters{}
	for i := range all.Items {
		conditions[all.Items[i].Name] = all.Items[i].Status.Conditions
	}
	return conditions, nil
}

// Changes returns the conditions that are different later, or were in between.
func (c Clusters) Changes(later Clusters) []string {
	var out []string
	for name, conditions := range c {
		for _, was := range conditions {
			is := apimeta.FindStatusCondition(later[name], was.Type)
			switch {
			case is == nil:
				out = append(out, fmt.Sprintf("%s: %s is gone", name, was.Type))
			case is.Status != was.Status || is.Reason != was.Reason || !is.LastTransitionTime.Equal(&was.LastTransitionTime):
				out = append(out, fmt.Sprintf("%s: %s was %s %s and became %s %s", name, was.Type, was.Status, was.Reason, is.Status, is.Reason))
			}
		}
	}
	return out
}
