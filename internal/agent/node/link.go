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

// Deadline is how long a Node may take to be registered and linked.
const Deadline = 5 * time.Minute

const (
	retryBase = 250 * time.Millisecond
	retryMax  = 5 * time.Second
)

// userPrefix is what the name of a kubelet's user begins with.
const userPrefix = "system:node:"

// Kubeconfigs are where the kubelets of kubeadm, k3s and RKE2 have their
// credentials.
func Kubeconfigs() []string {
	return []string{
		"/etc/kubernetes/kubelet.conf",
		"/var/lib/rancher/k3s/agent/kubelet.kubeconfig",
		"/var/lib/rancher/rke2/agent/kubelet.kubeconfig",
	}
}

// Linker links the Node of this host to its Machine.
type Linker struct {
	// Kubeconfigs are looked at in turn; nil means Kubeconfigs().
	Kubeconfigs []string
	Clock       retry.Clock
	Rand        func() float64
	// Dial connects to API servers; nil means the system's.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// MismatchError is a Node with another providerID; the API server doesn't let
// anybody change it.
type MismatchError struct{ Node, Has, Want string }

func (e *MismatchError) Error() string {
	return fmt.Sprintf("Node %s has spec.providerID %q already, which cannot be changed to %q: "+
		"something else in the cluster, such as a cloud provider, sets it", e.Node, e.Has, e.Want)
}

// Link sets spec.providerID of this host's Node if it is empty. The Node may
// not be registered yet: Link tries for Deadline. linked is false on a host
// that has no kubelet.
func (l *Linker) Link(ctx context.Context, providerID string) (linked bool, err error) {
	paths := l.Kubeconfigs
	if paths == nil {
		paths = Kubeconfigs()
	}
	path, found, err := find(paths)
	if !found || err != nil {
		return false, err
	}
	backoff := &retry.Backoff{Base: retryBase, Max: retryMax, Rand: l.Rand}
	deadline := l.Clock.Now().Add(Deadline)
	for {
		err := l.attempt(ctx, path, providerID)
		if err == nil {
			return true, nil
		}
		if _, ok := errors.AsType[*MismatchError](err); ok {
			return false, err
		}
		wait := backoff.Next()
		if l.Clock.Now().Add(wait).After(deadline) {
			return false, fmt.Errorf("giving up on setting the Node's providerID after %s: %w", Deadline, err)
		}
		if waited := l.Clock.Wait(ctx, wait); waited != nil {
			return false, fmt.Errorf("setting the Node's providerID: %w", errors.Join(waited, err))
		}
	}
}

// attempt reads the kubeconfig every time: the kubelet renews its certificate.
func (l *Linker) attempt(ctx context.Context, path, providerID string) error {
	access, err := kube.Load(path)
	if err != nil {
		return err
	}
	access.Dial = l.Dial
	name, isNode := strings.CutPrefix(access.User(), userPrefix)
	if !isNode || name == "" {
		return fmt.Errorf("using %s: its certificate is for %q, not for a node", path, access.User())
	}
	var node struct {
		Spec struct {
			ProviderID string `json:"providerID"`
		} `json:"spec"`
	}
	if err := access.Get(ctx, &node, "api", "v1", "nodes", name); err != nil {
		return fmt.Errorf("getting Node %s: %w", name, err)
	}
	if node.Spec.ProviderID == "" {
		patch := map[string]any{"spec": map[string]any{"providerID": providerID}}
		if err := access.Patch(ctx, patch, &node, "api", "v1", "nodes", name); err != nil {
			return fmt.Errorf("setting spec.providerID of Node %s: %w", name, err)
		}
	}
	if has := node.Spec.ProviderID; has != providerID {
		return &MismatchError{Node: name, Has: has, Want: providerID}
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
