package nodes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/apiserver"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/kube"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
)

const (
	// Kubeconfig is the kubeconfig of an administrator.
	Kubeconfig = "/etc/kubernetes/admin.conf"
	// limit is how long Remove waits until Nodes are no longer Ready. Kubernetes finds that out 50
	// seconds after its controllers have started, by default.
	limit        = 3 * time.Minute
	pollInterval = 5 * time.Second
	// pageOfNodes times the size of a Node with many images is less than an answer may have.
	pageOfNodes = 25
)

// Remover deletes Nodes. All fields but Root and Dial are required.
type Remover struct {
	// Root replaces "/".
	Root string
	// Dial opens connections; nil means net.Dialer.
	Dial  func(ctx context.Context, network, address string) (net.Conn, error)
	Clock retry.Clock
}

// Remove deletes the Nodes of hosts that have other providerIDs than these. The providerIDs differ in
// what follows the last slash; Nodes whose providerID begins otherwise stay, and so do those without
// one. A Node that is Ready stays, because its host runs: left has its name. Remove returns an error if
// it could not do all of this within three minutes. It may be repeated.
func (r Remover) Remove(ctx context.Context, providerIDs []string) (removed, left []string, err error) {
	prefix, err := prefixOf(providerIDs)
	if err != nil {
		return nil, nil, err
	}
	for began := r.Clock.Now(); ; {
		var gone []string
		gone, left, err = r.attempt(ctx, func(providerID string) bool {
			return strings.HasPrefix(providerID, prefix) && !slices.Contains(providerIDs, providerID)
		})
		removed = append(removed, gone...)
		if err == nil && len(left) == 0 || r.Clock.Now().Sub(began) >= limit {
			return removed, left, err
		}
		if err := r.Clock.Wait(ctx, pollInterval); err != nil {
			return removed, left, err
		}
	}
}

// prefixOf returns what all providerIDs begin with, up to the last slash.
func prefixOf(providerIDs []string) (string, error) {
	if len(providerIDs) == 0 {
		return "", errors.New("no host belongs to the cluster")
	}
	prefix := providerIDs[0][:strings.LastIndexByte(providerIDs[0], '/')+1]
	for _, providerID := range providerIDs {
		if name, ok := strings.CutPrefix(providerID, prefix); !ok || prefix == "" || name == "" || strings.Contains(name, "/") {
			return "", fmt.Errorf("the providerID %.256q does not begin with %q", providerID, prefix)
		}
	}
	return prefix, nil
}

type node struct {
	Metadata struct {
		Name            string `json:"name"`
		UID             string `json:"uid"`
		ResourceVersion string `json:"resourceVersion"`
	} `json:"metadata"`
	Spec struct {
		ProviderID string `json:"providerID"`
	} `json:"spec"`
	Status struct {
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

// isReady reports whether the kubelet of the Node runs, as far as Kubernetes knows.
func (n node) isReady() bool {
	for _, c := range n.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True"
		}
	}
	return false
}

// attempt deletes the Nodes that are not Ready, and returns the others too.
func (r Remover) attempt(ctx context.Context, isForeign func(providerID string) bool) (removed, left []string, err error) {
	access, err := kube.Load(filepath.Join(r.Root, Kubeconfig))
	if err != nil {
		return nil, nil, err
	}
	access.Dial = r.Dial
	if access, err = apiserver.Local(r.Root, access); err != nil {
		return nil, nil, err
	}
	nodes, err := list(ctx, access)
	if err != nil {
		return nil, nil, err
	}
	for _, n := range nodes {
		switch {
		case !isForeign(n.Spec.ProviderID):
		case n.isReady():
			left = append(left, n.Metadata.Name)
		default:
			isGone, deleteErr := remove(ctx, access, n)
			err = errors.Join(err, deleteErr)
			if isGone {
				removed = append(removed, n.Metadata.Name)
			} else {
				left = append(left, n.Metadata.Name)
			}
		}
	}
	return removed, left, err
}

func list(ctx context.Context, access kube.Access) ([]node, error) {
	query := url.Values{"limit": {strconv.Itoa(pageOfNodes)}}
	var nodes []node
	for {
		var page struct {
			Metadata struct {
				Continue string `json:"continue"`
			} `json:"metadata"`
			Items []node `json:"items"`
		}
		if err := access.List(ctx, query, &page, "api", "v1", "nodes"); err != nil {
			return nil, fmt.Errorf("listing the Nodes: %w", err)
		}
		nodes = append(nodes, page.Items...)
		if page.Metadata.Continue == "" {
			return nodes, nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}

// remove deletes a Node that has not changed since it was read: its kubelet may just have come back.
func remove(ctx context.Context, access kube.Access, n node) (isGone bool, err error) {
	options := map[string]any{
		"apiVersion": "v1", "kind": "DeleteOptions",
		"preconditions": map[string]string{"uid": n.Metadata.UID, "resourceVersion": n.Metadata.ResourceVersion},
	}
	err = access.Delete(ctx, options, "api", "v1", "nodes", n.Metadata.Name)
	if status, ok := errors.AsType[*kube.StatusError](err); ok {
		switch status.Code {
		case http.StatusNotFound:
			return true, nil
		case http.StatusConflict:
			return false, nil
		}
	}
	if err != nil {
		return false, fmt.Errorf("deleting Node %s: %w", n.Metadata.Name, err)
	}
	return true, nil
}
