package publish_test

import (
	"context"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/publish"
)

func TestPublish(t *testing.T) {
	c := newCluster(t, former)
	c.publish(rules(t, "10.0.0.2", former))
	c.check(current, current)
	// The endpoint moves again, to a host that was offline during the first move.
	c.publish(rules(t, "10.0.0.3", former, current))
	c.check("10.0.0.3:6443", "10.0.0.3:6443")
	// The endpoint moves back.
	c.publish(rules(t, "10.0.0.1", former, current, "10.0.0.3:6443"))
	c.check(former, former)
}

// A host whose plan still names it as the endpoint does not overwrite the newer
// endpoint that another host published.
func TestKeepsNewerEndpoint(t *testing.T) {
	c := newCluster(t, current)
	early := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	older := rulesSince(t, early, "10.0.0.1", current)
	c.publish(older)
	c.check(former, former)
	c.publish(rulesSince(t, early.Add(time.Second), "10.0.0.2", former))
	c.check(current, current)

	before := c.versions()
	err := publish.Publish(t.Context(), c.root, older)
	if err == nil || !strings.Contains(err.Error(), "a later endpoint") {
		t.Errorf("the outdated endpoint was published: %v", err)
	}
	if c.versions() != before {
		t.Error("the host with the outdated plan wrote something")
	}
	c.publish(rulesSince(t, early.Add(time.Hour), "10.0.0.1", current))
	c.check(former, former)
}

// If the endpoint has never moved, no Pod is replaced.
func TestNothingToPublish(t *testing.T) {
	for name, formers := range map[string][]string{"no former endpoint": nil, "the endpoint as a former one": {current}} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, current)
			before := c.versions()
			c.publish(rules(t, "10.0.0.2", formers...))
			if c.versions() != before {
				t.Error("something was written")
			}
		})
	}
}

// A value that is not a former endpoint was chosen by the user.
func TestKeepsOtherValues(t *testing.T) {
	c := newCluster(t, "lb.example.com:6443")
	before := c.versions()
	c.publish(rules(t, "10.0.0.2", former))
	c.check("lb.example.com:6443", "")
	if c.versions() != before {
		t.Error("something was written")
	}
}

// If another host died after it changed the ConfigMap and before it replaced the
// Pods, the next host replaces the Pods.
func TestContinuesAfterConfigMap(t *testing.T) {
	c := newCluster(t, current)
	c.publish(rules(t, "10.0.0.2", former))
	c.check(current, current)
}

func TestMissingObjects(t *testing.T) {
	c := newCluster(t, former)
	if err := c.Delete(t.Context(), daemonSet()); err != nil {
		t.Fatal(err)
	}
	c.publish(rules(t, "10.0.0.2", former))
	for _, name := range []string{"kube-proxy", "kubeadm-config"} {
		if err := c.Delete(t.Context(), c.configMap("kube-system", name, nil)); err != nil {
			t.Fatal(err)
		}
	}
	c.publish(rules(t, "10.0.0.3", former, current))
	if got := c.data("kube-public", "cluster-info")["kubeconfig"]; got != kubeconfig("10.0.0.3:6443") {
		t.Errorf("cluster-info has %s", got)
	}
	if err := c.Delete(t.Context(), c.configMap("kube-public", "cluster-info", nil)); err != nil {
		t.Fatal(err)
	}
	c.publish(rules(t, "10.0.0.2", former))
}

// An invalid object does not prevent the publication of the others.
func TestOneInvalidObject(t *testing.T) {
	c := newCluster(t, former)
	bad := c.configMap("kube-public", "cluster-info", map[string]string{"kubeconfig": "clusters: ["})
	if err := c.Update(t.Context(), bad); err != nil {
		t.Fatal(err)
	}
	err := publish.Publish(t.Context(), c.root, rules(t, "10.0.0.2", former))
	if err == nil || !strings.Contains(err.Error(), "kube-public/cluster-info") {
		t.Errorf("got %v", err)
	}
	if c.data("kube-system", "kubeadm-config")["ClusterConfiguration"] != configuration(current) || c.set().Spec.Template.Annotations[publish.Annotation] != current {
		t.Error("the others were not published")
	}
}

// Pods are not replaced as long as their kubeconfig names a former endpoint.
func TestForbidden(t *testing.T) {
	c := newCluster(t, former)
	c.host(env.AddUser(t, "reader", "readers"))
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "readers"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "readers"}},
	}
	if err := c.Create(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Delete(context.Background(), binding) })
	err := publish.Publish(t.Context(), c.root, rules(t, "10.0.0.2", former))
	if err == nil || strings.Count(err.Error(), "the API server answers 403") != 3 {
		t.Errorf("got %v", err)
	}
	c.check(former, "")
}
