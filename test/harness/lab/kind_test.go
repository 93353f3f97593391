package lab

import (
	"slices"
	"testing"

	"sigs.k8s.io/yaml"
)

// With kind, the management cluster is kind's node, at the address that the network leaves for Docker to choose. Only the
// first management cluster is made by kind.
func TestKind(t *testing.T) {
	l, err := New(Options{Name: "one", Management: ManagementKind, State: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	name := kindCluster{l}.name()
	if got := l.Management(); got.Container() != name+"-control-plane" || got.Address != "172.30.0.10" {
		t.Errorf("kind's cluster is %s, and its node %s, %s", name, got.Container(), got.Address)
	}
	if got, want := (kindCluster{l}).networkFlags(), []string{"--gateway", "172.30.0.1", "--ip-range", "172.30.0.10/32"}; !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if got := l.Second().Management().Name; got != "management-2" {
		t.Errorf("the second management cluster is %s", got)
	}
	if got := (kindCluster{l.Second()}).networkFlags(); len(got) > 0 {
		t.Errorf("got %v", got)
	}
}

func TestKindConfig(t *testing.T) {
	var got struct {
		Kind, APIVersion string
		Networking       struct {
			DisableDefaultCNI bool
			PodSubnet         string
		}
		KubeadmConfigPatches []string
	}
	if err := yaml.UnmarshalStrict([]byte(kindConfig()), &got); err != nil {
		t.Fatal(err)
	}
	if got.Kind != "Cluster" || got.APIVersion != "kind.x-k8s.io/v1alpha4" || !got.Networking.DisableDefaultCNI || got.Networking.PodSubnet != PodSubnet {
		t.Errorf("got %+v", got)
	}
	patches := map[string]map[string]any{}
	for _, text := range got.KubeadmConfigPatches {
		patch := map[string]any{}
		if err := yaml.Unmarshal([]byte(text), &patch); err != nil {
			t.Fatal(err)
		}
		patches[patch["kind"].(string)] = patch
	}
	kubelet := patches["KubeletConfiguration"]
	if fails, set := kubelet["failCgroupV1"].(bool); !set || fails || kubelet["cgroupDriver"] != "cgroupfs" {
		t.Errorf("the kubelet has %v", kubelet)
	}
}
