package software

import "regexp"

// AllowsCgroupV1 reports whether the kubelet's own configuration has failCgroupV1: false. It reads
// the folder that the kubelet's unit names, because kubeadm writes the other files, and later.
func (f *Finder) AllowsCgroupV1() bool {
	configFolder := regexp.MustCompile(`--config-dir[= ]"?(/[^\s"]+)`)
	// The files are YAML or JSON.
	failCgroupV1 := regexp.MustCompile(`(?m)^[\s{]*"?failCgroupV1"?\s*:\s*(true|false)`)
	folder := ""
	for _, name := range f.files.fragments(kubelet().unit) {
		for _, match := range configFolder.FindAllStringSubmatch(f.files.text(name), -1) {
			folder = match[1]
		}
	}
	if folder == "" {
		return false
	}
	allows := false
	// The kubelet merges the files in the order of their names: the last one wins.
	for _, name := range f.files.glob(folder + "/*.conf") {
		for _, match := range failCgroupV1.FindAllStringSubmatch(f.files.text(name), -1) {
			allows = match[1] == "false"
		}
	}
	return allows
}
