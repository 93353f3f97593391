package cluster

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
)

// pageOfPods is how many Pods one answer has.
const pageOfPods = 25

// Pod is a Pod on this host's Node.
type Pod struct {
	Namespace, Name, UID string
	// Mirror is true for the object of a static Pod.
	Mirror bool
	// DaemonSet is true for a Pod of a DaemonSet, which would be there again at once.
	DaemonSet bool
	// Finished is true for a Pod whose containers have ended for good.
	Finished bool
	// KeptByDrain is true for a Pod that its label keeps out of drains of Cluster API.
	KeptByDrain bool
	Ready       bool
	// Images are those of its containers.
	Images []string
}

type podObject struct {
	Metadata struct {
		Name            string            `json:"name"`
		Namespace       string            `json:"namespace"`
		UID             string            `json:"uid"`
		Labels          map[string]string `json:"labels"`
		Annotations     map[string]string `json:"annotations"`
		OwnerReferences []struct {
			Kind       string `json:"kind"`
			Controller bool   `json:"controller"`
		} `json:"ownerReferences"`
	} `json:"metadata"`
	Spec struct {
		Containers []struct {
			Image string `json:"image"`
		} `json:"containers"`
	} `json:"spec"`
	Status struct {
		Phase      string      `json:"phase"`
		Conditions []condition `json:"conditions"`
	} `json:"status"`
}

func (o podObject) pod() Pod {
	p := Pod{
		Namespace: o.Metadata.Namespace, Name: o.Metadata.Name, UID: o.Metadata.UID,
		Finished:    o.Status.Phase == "Succeeded" || o.Status.Phase == "Failed",
		KeptByDrain: o.Metadata.Labels["cluster.x-k8s.io/drain"] == "skip", Ready: isReady(o.Status.Conditions),
	}
	_, p.Mirror = o.Metadata.Annotations["kubernetes.io/config.mirror"]
	for _, owner := range o.Metadata.OwnerReferences {
		p.DaemonSet = p.DaemonSet || owner.Controller && owner.Kind == "DaemonSet"
	}
	for _, container := range o.Spec.Containers {
		p.Images = append(p.Images, container.Image)
	}
	return p
}

// Pods returns the Pods of this host's Node.
func (c Client) Pods(ctx context.Context) ([]Pod, error) {
	access, node, err := c.access()
	if err != nil {
		return nil, err
	}
	query := url.Values{"fieldSelector": {"spec.nodeName=" + node}, "limit": {strconv.Itoa(pageOfPods)}}
	var pods []Pod
	for {
		var page struct {
			Metadata struct {
				Continue string `json:"continue"`
			} `json:"metadata"`
			Items []podObject `json:"items"`
		}
		if err := access.List(ctx, query, &page, "api", "v1", "pods"); err != nil {
			return nil, fmt.Errorf("listing the Pods of Node %s: %w", node, err)
		}
		for _, object := range page.Items {
			pods = append(pods, object.pod())
		}
		if page.Metadata.Continue == "" {
			return pods, nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}

// Evict asks the API server to end a Pod. It refuses with 429 if a PodDisruptionBudget
// does not allow it now.
func (c Client) Evict(ctx context.Context, pod Pod) error {
	access, _, err := c.access()
	if err != nil {
		return err
	}
	eviction := map[string]any{
		"apiVersion": "policy/v1", "kind": "Eviction",
		"metadata":      map[string]any{"name": pod.Name, "namespace": pod.Namespace},
		"deleteOptions": map[string]any{"preconditions": map[string]any{"uid": pod.UID}},
	}
	return access.Create(ctx, eviction, nil, "api", "v1", "namespaces", pod.Namespace, "pods", pod.Name, "eviction")
}
