package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/kube"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
)

// Deadline is the time limit for the kubelet to register the Node, and for
// a change of the Node.
const Deadline = 5 * time.Minute

const (
	retryBase = 250 * time.Millisecond
	retryMax  = 5 * time.Second
)

// userPrefix is the prefix of a kubelet's user name.
const userPrefix = "system:node:"

// Kubeconfigs returns the kubeconfigs of the kubelets of kubeadm, k3s and RKE2.
func Kubeconfigs() []string {
	return []string{
		"/etc/kubernetes/kubelet.conf",
		"/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
		"/var/lib/rancher/rke2/agent/kubelet.kubeconfig",
	}
}

// Setter changes this host's Node.
type Setter struct {
	// Kubeconfigs are tried in this order; nil means Kubeconfigs().
	Kubeconfigs []string
	Clock       retry.Clock
	Rand        func() float64
	// Dial opens connections; nil means net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// MismatchError is returned for a Node that has another providerID. The API
// server rejects changes of a providerID.
type MismatchError struct{ Node, Has, Want string }

func (e *MismatchError) Error() string {
	return fmt.Sprintf("Node %s has spec.providerID %q already, which cannot be changed to %q: "+
		"something else in the cluster, such as a cloud provider, sets it", e.Node, e.Has, e.Want)
}

// SetProviderID sets spec.providerID of this host's Node if it is empty. If the
// Node is not registered yet, it retries until Deadline. isSet is false on a host
// without a kubelet.
func (s *Setter) SetProviderID(ctx context.Context, providerID string) (isSet bool, err error) {
	return s.change(ctx, "providerID", func(ctx context.Context, n named) error { return n.setProviderID(ctx, providerID) })
}

// SetLabels sets labels of this host's Node, and leaves others as they are. If the Node is
// not registered yet, it retries until Deadline. isSet is false on a host without a kubelet.
// The API server refuses labels that kubelets may not set.
func (s *Setter) SetLabels(ctx context.Context, labels map[string]string) (isSet bool, err error) {
	return s.change(ctx, "labels", func(ctx context.Context, n named) error { return n.setLabels(ctx, labels) })
}

// change retries a change of the Node; what is its name for people.
func (s *Setter) change(ctx context.Context, what string, change func(context.Context, named) error) (isSet bool, err error) {
	paths := s.Kubeconfigs
	if paths == nil {
		paths = Kubeconfigs()
	}
	path, found, err := find(paths)
	if !found || err != nil {
		return false, err
	}
	backoff := &retry.Backoff{Base: retryBase, Max: retryMax, Rand: s.Rand}
	deadline := s.Clock.Now().Add(Deadline)
	for {
		err := s.attempt(ctx, path, change)
		if err == nil {
			return true, nil
		}
		if _, ok := errors.AsType[*MismatchError](err); ok {
			return false, err
		}
		wait := backoff.Next()
		if s.Clock.Now().Add(wait).After(deadline) {
			return false, fmt.Errorf("giving up on setting the Node's %s after %s: %w", what, Deadline, err)
		}
		if waitErr := s.Clock.Wait(ctx, wait); waitErr != nil {
			return false, fmt.Errorf("setting the Node's %s: %w", what, errors.Join(waitErr, err))
		}
	}
}

// attempt reads the kubeconfig again each time, because the kubelet renews its
// certificate.
func (s *Setter) attempt(ctx context.Context, path string, change func(context.Context, named) error) error {
	access, err := kube.Load(path)
	if err != nil {
		return err
	}
	access.Dial = s.Dial
	name, hasPrefix := strings.CutPrefix(access.User(), userPrefix)
	if !hasPrefix || name == "" {
		return fmt.Errorf("using %s: its certificate is for %q, not for a node", path, access.User())
	}
	return change(ctx, named{access, name})
}

// named is this host's Node.
type named struct {
	access kube.Access
	name   string
}

func (n named) setProviderID(ctx context.Context, providerID string) error {
	var node struct {
		Spec struct {
			ProviderID string `json:"providerID"`
		} `json:"spec"`
	}
	if err := n.access.Get(ctx, &node, "api", "v1", "nodes", n.name); err != nil {
		return fmt.Errorf("getting Node %s: %w", n.name, err)
	}
	if node.Spec.ProviderID == "" {
		patch := map[string]any{"spec": map[string]any{"providerID": providerID}}
		if err := n.access.Patch(ctx, patch, &node, "api", "v1", "nodes", n.name); err != nil {
			return fmt.Errorf("setting spec.providerID of Node %s: %w", n.name, err)
		}
	}
	if node.Spec.ProviderID != providerID {
		return &MismatchError{Node: n.name, Has: node.Spec.ProviderID, Want: providerID}
	}
	return nil
}

func (n named) setLabels(ctx context.Context, labels map[string]string) error {
	var node struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	if err := n.access.Get(ctx, &node, "api", "v1", "nodes", n.name); err != nil {
		return fmt.Errorf("getting Node %s: %w", n.name, err)
	}
	missing := map[string]string{}
	for key, value := range labels {
		if is, ok := node.Metadata.Labels[key]; !ok || is != value {
			missing[key] = value
		}
	}
	if len(missing) == 0 {
		return nil
	}
	patch := map[string]any{"metadata": map[string]any{"labels": missing}}
	if err := n.access.Patch(ctx, patch, nil, "api", "v1", "nodes", n.name); err != nil {
		return fmt.Errorf("setting labels of Node %s: %w", n.name, err)
	}
	return nil
}

// find returns the first of the paths that exists.
func find(paths []string) (path string, found bool, err error) {
	for _, path := range paths {
		_, err := os.Stat(path)
		if err == nil {
			return path, true, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", false, fmt.Errorf("looking for the kubelet's kubeconfig: %w", err)
		}
	}
	return "", false, nil
}
