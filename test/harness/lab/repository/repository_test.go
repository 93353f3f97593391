package repository

import (
	"testing"

	"sigs.k8s.io/yaml"
)

// TestEntries checks that clusterctl.yaml is valid, and that addresses end as clusterctl demands:
// with a label, a version and a file.
func TestEntries(t *testing.T) {
	r := Repository{Root: "/repo", Version: "v1.14.2"}
	text := "providers:\n" + r.Providers() + r.Entry(Elemental(), "v0.1.0") + r.CertManager()
	var config struct {
		Providers   []struct{ Name, Type, URL string }
		CertManager struct{ URL, Version string } `json:"cert-manager"`
	}
	if err := yaml.UnmarshalStrict([]byte(text), &config); err != nil {
		t.Fatal(err)
	}
	urls := map[string]string{}
	for _, p := range config.Providers {
		urls[p.Type] = p.URL
	}
	for kind, want := range map[string]string{
		"CoreProvider":           "file:///repo/cluster-api/v1.14.2/core-components.yaml",
		"BootstrapProvider":      "file:///repo/bootstrap-kubeadm/v1.14.2/bootstrap-components.yaml",
		"ControlPlaneProvider":   "file:///repo/control-plane-kubeadm/v1.14.2/control-plane-components.yaml",
		"InfrastructureProvider": "file:///repo/infrastructure-elemental/v0.1.0/infrastructure-components.yaml",
	} {
		if urls[kind] != want {
			t.Errorf("%s: got %q, want %q", kind, urls[kind], want)
		}
	}
	if want := "file:///repo/cert-manager/v1.0.0/cert-manager.yaml"; config.CertManager.URL != want || config.CertManager.Version != "v1.0.0" {
		t.Errorf("got %+v", config.CertManager)
	}
	if image := Upstream("v1.14.2")[0].Image; image != "registry.k8s.io/cluster-api/cluster-api-controller:v1.14.2" {
		t.Errorf("got %s", image)
	}
}
