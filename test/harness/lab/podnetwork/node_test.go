package podnetwork

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"
)

// TestConnect checks that a node gets the configuration for its own Pods, and not before they
// have a network.
func TestConnect(t *testing.T) {
	own := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}}
	c := fake.NewClientBuilder().WithObjects(own, other).Build()
	root := t.TempDir()
	n := Node{Name: "a", Root: root, Client: c}
	if err := n.Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "no network for Pods") {
		t.Errorf("got %v", err)
	}
	own.Spec.PodCIDR = "10.244.3.0/24"
	if err := c.Update(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	if err := n.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, ConfigFolder, "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("got %q, %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Plugins []struct {
			IPAM struct{ Ranges [][]struct{ Subnet string } }
		}
	}
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	if got := config.Plugins[0].IPAM.Ranges[0][0].Subnet; got != "10.244.3.0/24" {
		t.Errorf("got %s", got)
	}
}

// TestManifests checks that the DaemonSet runs the image that the lab brings.
func TestManifests(t *testing.T) {
	for document := range strings.SplitSeq(Manifests(), "\n---\n") {
		var set struct {
			Kind string
			Spec struct {
				Template corev1.PodTemplateSpec
			}
		}
		if err := yaml.Unmarshal([]byte(document), &set); err != nil {
			t.Fatal(err)
		}
		if set.Kind == "DaemonSet" && set.Spec.Template.Spec.Containers[0].Image == Image {
			return
		}
	}
	t.Error("no DaemonSet runs the image")
}
