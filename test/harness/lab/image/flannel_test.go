package image

import (
	"strings"
	"testing"
)

const releasedFlannel = `
      "cniVersion": "1.0.0",
        "Type": "vxlan"
      - name: install-cni-plugin
        image: example.com/flannel-cni-plugin:v2
      - name: install-cni
        image: example.com/flannel:v1
      - name: kube-flannel
        image: example.com/flannel:v1
`

func TestFlannelManifest(t *testing.T) {
	got, err := flannelManifest(releasedFlannel)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer("vxlan", "host-gw", `"1.0.0"`, `"0.4.0"`).Replace(releasedFlannel)
	if got != want {
		t.Errorf("got %s", got)
	}
	if _, err := flannelManifest(got); err == nil {
		t.Error("a manifest without the values was accepted")
	}
}

// TestFlannelImages checks that each image of the manifest is made once, and that an unknown one is an error.
func TestFlannelImages(t *testing.T) {
	images, err := flannelImages(releasedFlannel, "/tools", "/programs/cp", "/iptables.tar")
	if err != nil {
		t.Fatal(err)
	}
	if len(images) != 2 || images[0].Name != "example.com/flannel-cni-plugin:v2" || images[1].Name != "example.com/flannel:v1" {
		t.Fatalf("got %+v", images)
	}
	if images[0].Files["/bin/cp"] != "/programs/cp" || images[0].Files["/flannel"] != "/tools/flannel" {
		t.Errorf("got %+v", images[0])
	}
	if images[1].Base != "/iptables.tar" || images[1].Files["/opt/bin/flanneld"] != "/tools/flanneld" {
		t.Errorf("got %+v", images[1])
	}
	if _, err := flannelImages("  image: example.com/other:v1", "", "", ""); err == nil || !strings.Contains(err.Error(), "example.com/other:v1") {
		t.Errorf("got %v", err)
	}
}
