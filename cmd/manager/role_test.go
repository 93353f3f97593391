package main

import (
	"bytes"
	"os"
	"path/filepath"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// readClusterRole reads what the manager is allowed to do where it is installed.
func readClusterRole(r *rig) *rbacv1.ClusterRole {
	r.T.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "config", "rbac", "role.yaml"))
	r.Expect(err).NotTo(HaveOccurred())
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		role := &rbacv1.ClusterRole{}
		r.Expect(yaml.Unmarshal(document, role)).To(Succeed())
		if role.Kind == "ClusterRole" {
			role.TypeMeta.Kind, role.TypeMeta.APIVersion = "", ""
			return role
		}
	}
	r.T.Fatal("there is no ClusterRole")
	return nil
}
