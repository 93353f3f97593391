package endpoint

import (
	"fmt"
	"time"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/annotations"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/failover"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/change"
)

// Move plans to move the endpoint to a host, or to the best one if host is blank. The manager
// decides again, when it sees the request.
func (v *View) Move(host string) (*change.Plan, error) {
	infra, cluster := v.cluster.Infra, v.cluster.Cluster
	look := fmt.Sprintf("kubectl elemental endpoint %s -n %s", cluster.Name, cluster.Namespace)
	refuse := func(reason, remedy string) (*change.Plan, error) {
		return nil, &change.Refusal{Subject: fmt.Sprintf("ElementalCluster %s/%s", infra.Namespace, infra.Name), Reason: reason, Remedy: remedy}
	}
	switch {
	case v.hostRef() == nil:
		return refuse("its endpoint is not the address of a host", "Only such an endpoint moves: "+look+" shows its type")
	case !cluster.DeletionTimestamp.IsZero():
		return refuse("its Cluster is being deleted", "The endpoint stays until the Cluster is gone")
	case ptr.Deref(cluster.Spec.Paused, false) || annotations.HasPaused(cluster) || annotations.HasPaused(infra):
		return refuse("its Cluster is paused, so the manager does nothing", "End the pause first")
	}
	if _, asked := infra.Annotations[infrav1.MoveEndpointAnnotation]; asked {
		return refuse("a move was requested already, and the manager has not begun it", "Wait for it: "+look)
	}
	asked := v.cluster
	asked.Infra = infra.DeepCopy()
	request(asked.Infra, host)
	d := failover.Decide(asked)
	switch {
	case d.RefusedRequest != "":
		return refuse(d.RefusedRequest, "Name a host that can have the endpoint: "+look)
	case d.Move == nil && v.cluster.Moving():
		return refuse("a move is in progress", "Wait until it is completed: "+look)
	case d.Move == nil:
		return refuse(d.Message, "Mend that first: "+look)
	case d.Move.Cause != infrav1.MoveRequested:
		return refuse(fmt.Sprintf("the endpoint moves to host %s by itself (%s)", d.Move.To.Name, d.Move.Cause), "Wait for it: "+look)
	}
	p := change.Patch("ElementalCluster", infra, fmt.Sprintf("move the endpoint from host %s to host %s", v.hostRef().Name, d.Move.To.Name),
		func(c *infrav1.ElementalCluster) { request(c, host) },
		func(*infrav1.ElementalCluster, time.Time) string { return "the move is requested; watch it by " + look })
	p.Effects = []string{
		"The endpoint becomes " + d.Move.Address,
		"Hosts, kubeconfigs and Machines of the cluster follow. Connections to the old address are refused once the new one is known",
		"Machines without a Node whose bootstrap data names the old address are replaced",
	}
	return p, nil
}

func request(c *infrav1.ElementalCluster, host string) {
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[infrav1.MoveEndpointAnnotation] = host
}
