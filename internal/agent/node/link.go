package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
)

// Deadline is how long a Node may take to be registered and linked.
const Deadline = 5 * time.Minute

const (
	requestTimeout = 10 * time.Second
	maxNodeBytes   = 4 << 20
	retryBase      = 250 * time.Millisecond
	retryMax       = 5 * time.Second
)

// Linker links the Node of this host to its Machine.
type Linker struct {
	// Kubeconfigs are looked at in turn; nil means Kubeconfigs().
	Kubeconfigs []string
	Clock       retry.Clock
	Rand        func() float64
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
		err := attempt(ctx, path, providerID)
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
func attempt(ctx context.Context, path, providerID string) error {
	a, err := load(path)
	if err != nil {
		return err
	}
	transport := &http.Transport{TLSClientConfig: a.tls, DisableKeepAlives: true}
	client := &http.Client{Transport: transport, Timeout: requestTimeout}
	has, err := a.request(ctx, client, http.MethodGet, nil)
	if err != nil {
		return fmt.Errorf("getting Node %s: %w", a.nodeName, err)
	}
	if has == "" {
		patch := map[string]any{"spec": map[string]any{"providerID": providerID}}
		if has, err = a.request(ctx, client, http.MethodPatch, patch); err != nil {
			return fmt.Errorf("setting spec.providerID of Node %s: %w", a.nodeName, err)
		}
	}
	if has != providerID {
		return &MismatchError{Node: a.nodeName, Has: has, Want: providerID}
	}
	return nil
}

// request gets or patches the Node and returns its providerID.
func (a access) request(ctx context.Context, client *http.Client, method string, patch any) (providerID string, err error) {
	var body []byte
	if patch != nil {
		if body, err = json.Marshal(patch); err != nil {
			return "", fmt.Errorf("encoding the patch: %w", err)
		}
	}
	target := a.server.JoinPath("api", "v1", "nodes", url.PathEscape(a.nodeName))
	request, err := http.NewRequestWithContext(ctx, method, target.String(), bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Accept", "application/json")
	if patch != nil {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(response.Body, maxNodeBytes))
	if err != nil {
		return "", fmt.Errorf("reading the API server's answer: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return "", refusal(response.StatusCode, data)
	}
	var node struct {
		Spec struct {
			ProviderID string `json:"providerID"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(data, &node); err != nil {
		return "", fmt.Errorf("decoding the API server's answer: %w", err)
	}
	return node.Spec.ProviderID, nil
}

// refusal reads a metav1.Status.
func refusal(code int, body []byte) error {
	var status struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(body, &status) != nil || status.Message == "" {
		status.Message = http.StatusText(code)
	}
	return fmt.Errorf("the API server answers %d: %s", code, status.Message)
}
