package publish

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/rewrite"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/kube"
)

// Annotation is set on the template of kube-proxy's Pods. A new value makes the
// DaemonSet replace the Pods: kube-proxy reads its kubeconfig only at its start.
const Annotation = "infrastructure.cluster.x-k8s.io/control-plane-endpoint"

// SinceAnnotation is set on a ConfigMap whose endpoint was replaced, to the time
// at which the new one became the endpoint (RFC 3339). A host whose plan is
// outdated does not replace a newer endpoint.
const SinceAnnotation = "infrastructure.cluster.x-k8s.io/control-plane-endpoint-since"

// errNewer means that an object names a newer endpoint than this host's plan.
var errNewer = errors.New("another host published a later endpoint; this host waits until its plan contains that endpoint")

// attempts limits how often a change is repeated after a conflict.
const attempts = 5

// Publish replaces the former endpoints in all objects. It may be repeated, and
// writes nothing to objects that name the current endpoint.
func Publish(ctx context.Context, root string, rules rewrite.Rules) error {
	access, ok, err := localAPIServer(root)
	if err != nil {
		return fmt.Errorf("publishing the endpoint in the cluster: %w", err)
	}
	if !ok {
		return nil
	}
	kubeconfig := func(text []byte) ([]byte, error) { return rules.Kubeconfig(text, nil) }
	var failures []error
	for _, object := range []configMap{
		{"kube-public", "cluster-info", "kubeconfig", kubeconfig},
		{"kube-system", "kubeadm-config", "ClusterConfiguration", rules.ClusterConfiguration},
	} {
		_, err := object.publish(ctx, access, rules.Since())
		failures = append(failures, err)
	}
	failures = append(failures, publishProxy(ctx, access, rules, kubeconfig))
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("publishing the endpoint in the cluster: %w", err)
	}
	return nil
}

// configMap is a document in a ConfigMap.
type configMap struct {
	namespace, name, key string
	// replace returns the document with the current endpoint.
	replace func(text []byte) ([]byte, error)
}

type metadata struct {
	ResourceVersion string            `json:"resourceVersion"`
	Annotations     map[string]string `json:"annotations,omitempty"`
}

// publish replaces the document, unless it names an endpoint that is newer than
// since. It returns the document's text, or "" if there is no ConfigMap.
func (c configMap) publish(ctx context.Context, access kube.Access, since time.Time) (text string, err error) {
	err = retry(func() error {
		var object struct {
			Metadata metadata          `json:"metadata"`
			Data     map[string]string `json:"data"`
		}
		path := []string{"api", "v1", "namespaces", c.namespace, "configmaps", c.name}
		if err := access.Get(ctx, &object, path...); err != nil {
			return ignoreMissing(err)
		}
		// An invalid time is ignored.
		if published, err := time.Parse(time.RFC3339, object.Metadata.Annotations[SinceAnnotation]); err == nil && published.After(since) && !since.IsZero() {
			return errNewer
		}
		former := object.Data[c.key]
		next, err := c.replace([]byte(former))
		if err != nil {
			return err
		}
		if text = string(next); text == former {
			return nil
		}
		patch := metadata{ResourceVersion: object.Metadata.ResourceVersion}
		if !since.IsZero() {
			patch.Annotations = map[string]string{SinceAnnotation: since.Format(time.RFC3339)}
		}
		return access.Patch(ctx, map[string]any{"metadata": patch, "data": map[string]string{c.key: text}}, nil, path...)
	})
	if err != nil {
		return "", fmt.Errorf("ConfigMap %s/%s: %w", c.namespace, c.name, err)
	}
	return text, nil
}

// publishProxy replaces the endpoint in kube-proxy's kubeconfig and then its
// Pods. Only the annotation shows that the Pods were replaced, so that any host
// can finish what another host began. As long as the endpoint has never moved,
// no Pod is replaced.
func publishProxy(ctx context.Context, access kube.Access, rules rewrite.Rules, replace func([]byte) ([]byte, error)) error {
	text, err := configMap{"kube-system", "kube-proxy", "kubeconfig.conf", replace}.publish(ctx, access, rules.Since())
	if err != nil || text == "" || !rules.Moved() {
		return err
	}
	isCurrent, err := rules.NamesEndpoint([]byte(text))
	if err != nil || !isCurrent {
		return err
	}
	err = retry(func() error {
		var set struct {
			Metadata metadata `json:"metadata"`
			Spec     struct {
				Template struct {
					Metadata struct {
						Annotations map[string]string `json:"annotations"`
					} `json:"metadata"`
				} `json:"template"`
			} `json:"spec"`
		}
		path := []string{"apis", "apps", "v1", "namespaces", "kube-system", "daemonsets", "kube-proxy"}
		if err := access.Get(ctx, &set, path...); err != nil {
			return ignoreMissing(err)
		}
		if set.Spec.Template.Metadata.Annotations[Annotation] == rules.Endpoint() {
			return nil
		}
		annotations := map[string]string{Annotation: rules.Endpoint()}
		return access.Patch(ctx, map[string]any{
			"metadata": metadata{ResourceVersion: set.Metadata.ResourceVersion},
			"spec":     map[string]any{"template": map[string]any{"metadata": map[string]any{"annotations": annotations}}},
		}, nil, path...)
	})
	if err != nil {
		return fmt.Errorf("DaemonSet kube-system/kube-proxy: %w", err)
	}
	return nil
}

// retry repeats a change that conflicts with another client's.
func retry(change func() error) error {
	var err error
	for range attempts {
		if err = change(); !hasCode(err, http.StatusConflict) {
			return err
		}
	}
	return err
}

func ignoreMissing(err error) error {
	if hasCode(err, http.StatusNotFound) {
		return nil
	}
	return err
}

func hasCode(err error, code int) bool {
	status, ok := errors.AsType[*kube.StatusError](err)
	return ok && status.Code == code
}
