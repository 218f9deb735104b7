package ckptsidecar_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const clientPackage = module + "/client"

// TestClientIsUsableFromOutside builds a separate module that names every
// exported signature of the client, with all types in it.
func TestClientIsUsableFromOutside(t *testing.T) {
	dir := outsideModule(t)
	program := bytes.NewBufferString("package main\n\n")
	declarations, imported := signatures(t, exported(t, dir))
	if len(declarations) < 60 {
		t.Fatalf("only %d signatures were found", len(declarations))
	}
	for _, path := range imported {
		fmt.Fprintf(program, "import %s %q\n", alias(path), path)
	}
	fmt.Fprintf(program, "\nvar (\n\t%s\n)\n\nfunc main() {}\n", strings.Join(declarations, "\n\t"))
	if err := os.WriteFile(filepath.Join(dir, "main.go"), program.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := goCommand(t, dir, "build", "-o", os.DevNull, ".").CombinedOutput(); err != nil {
		t.Errorf("a module outside cannot name what the client exports: %v\n%s", err, out)
	}
}

// TestClientCompilesNoServer lists everything that a program of another module
// compiles because it imports the client.
func TestClientCompilesNoServer(t *testing.T) {
	allowed := []string{
		module, clientPackage, module + "/internal/ipc", module + "/internal/ipc/client", module + "/internal/ipc/endpoint",
		module + "/internal/delta", module + "/internal/fleet", module + "/internal/jsontext", module + "/internal/osfile", module + "/internal/periodic",
		module + "/internal/survey", module + "/internal/wellformed",
		"github.com/cenkalti/backoff/v4", "github.com/google/uuid",
	}
	out, err := goCommand(t, outsideModule(t), "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", clientPackage).Output()
	if err != nil {
		t.Fatal(err)
	}
	found := strings.Fields(string(out))
	if !slices.Contains(found, clientPackage) {
		t.Fatalf("go list answers %q", found)
	}
	for _, path := range found {
		system := within(path, "golang.org/x/sys") || within(path, "github.com/Microsoft/go-winio")
		if !system && !slices.Contains(allowed, path) {
			t.Errorf("who imports the client compiles %s", path)
		}
	}
}

// outsideModule makes another module that can import the client. It requires
// the same versions, so that the go command needs no network.
func outsideModule(t *testing.T) string {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile("go.sum")
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.Replace(text, []byte("module "+module), []byte("module example.com/outside"), 1)
	text = fmt.Appendf(text, "\nrequire %s v0.0.0\n\nreplace %s => %s\n", module, module, filepath.ToSlash(here))
	dir := t.TempDir()
	for name, content := range map[string][]byte{"go.mod": text, "go.sum": sums, "outside.go": []byte("package main\n\nimport _ \"" + clientPackage + "\"\n")} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func goCommand(t *testing.T, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
	return cmd
}

// exported reads the types of the client from the compiler's export data.
func exported(t *testing.T, dir string) *types.Package {
	t.Helper()
	out, err := goCommand(t, dir, "list", "-export", "-deps", "-json=ImportPath,Export", clientPackage).Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for lines := json.NewDecoder(bytes.NewReader(out)); lines.More(); {
		var p struct{ ImportPath, Export string }
		if err := lines.Decode(&p); err != nil {
			t.Fatal(err)
		}
		files[p.ImportPath] = p.Export
	}
	open := func(path string) (io.ReadCloser, error) { return os.Open(files[path]) }
	pkg, err := importer.ForCompiler(token.NewFileSet(), "gc", open).Import(clientPackage)
	if err != nil {
		t.Fatal(err)
	}
	return pkg
}

// signatures writes a declaration with the written-out type for each exported
// name of a package, each exported field and each method. It also returns the
// packages that those types name.
func signatures(t *testing.T, pkg *types.Package) (declarations, imported []string) {
	qualify := func(p *types.Package) string {
		if !slices.Contains(imported, p.Path()) {
			imported = append(imported, p.Path())
		}
		return alias(p.Path())
	}
	declare := func(of types.Type, value string) {
		declarations = append(declarations, fmt.Sprintf("_ %s = %s", types.TypeString(of, qualify), value))
	}
	scope := pkg.Scope()
	for _, name := range scope.Names() {
		object := scope.Lookup(name)
		if !object.Exported() {
			continue
		}
		value := qualify(pkg) + "." + name
		switch object := object.(type) {
		case *types.Func:
			signature := object.Signature()
			if signature.TypeParams().Len() > 0 {
				of, err := types.Instantiate(nil, signature, []types.Type{types.Typ[types.Int]}, true)
				if err != nil {
					t.Fatal(err)
				}
				declare(of, value+"[int]")
				continue
			}
			declare(signature, value)
		case *types.TypeName:
			for _, member := range members(object.Type()) {
				declare(member.of, fmt.Sprintf(member.form, value))
			}
		default:
			declare(types.Default(object.Type()), value)
		}
	}
	return declarations, imported
}

// member is an exported field or method of a type: its type, and an expression
// of that type, in which %s stands for the type that has it.
type member struct {
	of   types.Type
	form string
}

func members(of types.Type) (list []member) {
	methods := types.NewMethodSet(types.NewPointer(of))
	for method := range methods.Methods() {
		if f, ok := method.Obj().(*types.Func); ok && f.Exported() {
			receiver := types.NewParam(token.NoPos, nil, "", types.NewPointer(of))
			params := []*types.Var{receiver}
			for p := range f.Signature().Params().Variables() {
				params = append(params, types.NewParam(token.NoPos, nil, "", p.Type()))
			}
			whole := types.NewSignatureType(nil, nil, nil, types.NewTuple(params...), f.Signature().Results(), f.Signature().Variadic())
			list = append(list, member{whole, "(*%s)." + f.Name()})
		}
	}
	if s, ok := of.Underlying().(*types.Struct); ok {
		for field := range s.Fields() {
			if field.Exported() {
				list = append(list, member{field.Type(), "new(%s)." + field.Name()})
			}
		}
	}
	return list
}

// alias names a package so that no two have the same name.
func alias(path string) string {
	return strings.NewReplacer("/", "_", ".", "_", "-", "_").Replace(path)
}
