// Every kernel gives the same bits on 1, 2, 3, 4 and 7 threads, and when run twice.
#include <functional>

#include "attention_reference.h"

namespace mtrain::testing {
namespace {

using Bits = std::vector<std::vector<unsigned char>>;

template <class T>
void keep(Bits& bits, const Buffer<T>& buffer) {
  auto* at = reinterpret_cast<const unsigned char*>(buffer.data());
  bits.emplace_back(at, at + sizeof(T) * static_cast<size_t>(buffer.count()));
}

template <class T>
void norms(Stream& s, const KernelTable& k, Bits& bits) {
  int64_t rows = 1001, cols = 129;
  DType type = DTypeOf<T>::value;
  auto x = Buffer<T>::random(rows * cols, "x"), w = Buffer<T>::random(cols, "w"),
       dy = Buffer<T>::random(rows * cols, "dy");
  Buffer<T> y(rows * cols), dx(rows * cols);
  Buffer<float> mean(rows), rstd(rows), dw(cols), db(cols);
  k.rms_norm(s, {x.data(), w.data(), y.data(), rstd.data(), rows, cols, 1e-5f, type});
  k.rms_norm_backward(s, {dy.data(), x.data(), w.data(), rstd.data(), dx.data(), dw.data(), rows,
                          cols, false, false, type});
  keep(bits, y), keep(bits, dx), keep(bits, dw);
  k.layer_norm(s, {x.data(), w.data(), w.data(), y.data(), mean.data(), rstd.data(), rows, cols,
                   1e-5f, type});
  k.layer_norm_backward(s, {dy.data(), x.data(), w.data(), mean.data(), rstd.data(), dx.data(),
                            dw.data(), db.data(), rows, cols, true, true, true, type});
  keep(bits, y), keep(bits, dx), keep(bits, dw), keep(bits, db);
  k.column_sum(s, {x.data(), dw.data(), rows, cols, false, type});
  keep(bits, dw);
}

template <class T>
void elements(Stream& s, const KernelTable& k, Bits& bits) {
  int64_t n = 50001;
  DType type = DTypeOf<T>::value;
  auto a = Buffer<T>::random(n, "a"), b = Buffer<T>::random(n, "b"), c = Buffer<T>::random(n, "c");
  Buffer<T> y(n), z(n);
  k.silu_mul(s, {a.data(), b.data(), y.data(), n, type});
  keep(bits, y);
  k.silu_mul_backward(s, {c.data(), a.data(), b.data(), y.data(), z.data(), n, type});
  keep(bits, y), keep(bits, z);
  for (GeluKind kind : {GeluKind::erf, GeluKind::tanh}) {
    k.gelu(s, {a.data(), y.data(), n, kind, type});
    k.gelu_backward(s, {c.data(), a.data(), z.data(), n, kind, true, type});
    keep(bits, y), keep(bits, z);
  }
  k.add(s, {a.data(), b.data(), y.data(), n, type});
  k.dropout(s, {a.data(), z.data(), n, 5, 1, 2, 3, 0.1f, type});
  keep(bits, y), keep(bits, z);
  auto param = Buffer<float>::random(n, "p"), m = Buffer<float>::random(n, "m");
  Buffer<float> v(n, 0.1), wide(n);
  double norm = 0;
  k.cast(s, {a.data(), wide.data(), n, 0.3f, true, type, DType::f32});
  k.adamw(s, {param.data(), wide.data(), m.data(), v.data(), y.data(), n, 0.1f, 0.9f, 0.99f, 1e-8f,
              0.1f, 0.1f, 0.01f, 1, type});
  k.squared_norm(s, {param.data(), n, &norm});
  keep(bits, wide), keep(bits, param), keep(bits, y);
  Buffer<double> norms(1, norm);
  keep(bits, norms);
}

template <class T>
void tables(Stream& s, const KernelTable& k, Bits& bits) {
  int64_t rows = 300, cols = 321, valid = 300;
  DType type = DTypeOf<T>::value;
  auto logits = Buffer<T>::random(rows * cols, "logits", 3);
  Buffer<float> loss(rows), lse(rows), d_table(rows * cols);
  std::vector<int32_t> ids, positions;
  for (int64_t r = 0; r < rows; ++r) ids.push_back(static_cast<int32_t>(r * r % 37));
  k.cross_entropy(s, {logits.data(), ids.data(), loss.data(), lse.data(), rows, cols, valid, type});
  k.cross_entropy_backward(s, {loss.data(), logits.data(), ids.data(), lse.data(), logits.data(),
                               rows, cols, valid, type});
  keep(bits, loss), keep(bits, lse), keep(bits, logits);
  k.embedding_backward(s, {logits.data(), ids.data(), d_table.data(), rows, rows, cols, type});
  keep(bits, d_table);
  Buffer<T> y(rows * cols);
  k.embedding(s, {logits.data(), ids.data(), y.data(), rows, rows, cols, type});
  auto angles = Buffer<float>::random(40 * 50, "angles");
  k.rope(s, {y.data(), ids.data(), angles.data(), angles.data(), rows, 1, 3, 107, 100, cols, cols,
             false, type});
  keep(bits, y);
}

template <class T>
void attentions(Stream& s, const KernelTable& k, Bits& bits) {
  AttentionData<T> d({{0, 1, 131, 400}, 4, 2, 48}, true);
  AttentionGrads<T> g(d);
  k.attention(s, d.args());
  k.attention_backward(s, g.args(d));
  keep(bits, d.o), keep(bits, d.lse), keep(bits, g.d_qkv);
}

template <class T>
void product(Stream& s, const KernelTable& k, Bits& bits, int64_t m, int64_t n, int64_t p, bool ta,
             bool tb) {
  auto a = Buffer<T>::random(m * p, "a"), b = Buffer<T>::random(n * p, "b");
  Buffer<T> c(m * n);
  Buffer<float> wide(m * n, 1);
  GemmArgs args;
  args.a = a.data(), args.b = b.data(), args.c = c.data(), args.transpose_a = ta,
  args.transpose_b = tb;
  args.m = m, args.n = n, args.k = p, args.lda = ta ? m : p, args.ldb = tb ? p : n, args.ldc = n;
  args.dtype = args.c_dtype = DTypeOf<T>::value;
  k.gemm(s, args);
  args.c = wide.data(), args.c_dtype = DType::f32, args.beta = 1;
  k.gemm(s, args);
  keep(bits, c), keep(bits, wide);
}

template <class T>
void double_products(Stream& s, const KernelTable& k, Bits& bits) {
  const int64_t m = 130, n = 70, terms = 1000;
  auto a = Buffer<T>::random(m * terms, "a"), b = Buffer<T>::random(n * terms, "b");
  for (bool ta : {false, true})
    for (bool tb : {false, true}) {
      Buffer<double> c(m * n);
      k.double_gemm(s, {.a = a.data(),
                        .b = b.data(),
                        .c = c.data(),
                        .transpose_a = ta,
                        .transpose_b = tb,
                        .m = m,
                        .n = n,
                        .k = terms,
                        .a_dtype = DTypeOf<T>::value,
                        .b_dtype = DTypeOf<T>::value});
      keep(bits, c);
    }
}

/// Also a product with few outputs and many terms: a library may be tempted to split the terms
/// among its threads.
template <class T>
void products(Stream& s, const KernelTable& k, Bits& bits) {
  for (bool ta : {false, true})
    for (bool tb : {false, true}) product<T>(s, k, bits, 513, 264, 300, ta, tb);
  product<T>(s, k, bits, 64, 96, 5000, true, false);
  product<T>(s, k, bits, 704, 256, 2048, true, false);
  product<T>(s, k, bits, 1, 256, 704, false, true);
  product<T>(s, k, bits, 64, 96, 8200, false, true);
  for (auto [m, n] : {std::pair{32, 64}, {16, 32}, {7, 48}})
    for (int64_t terms : {1024, 4096}) product<T>(s, k, bits, m, n, terms, false, false);
}

template <class T>
void check_same_bits(const char* what, void (*run)(Stream&, const KernelTable&, Bits&)) {
  for (const cpu::Isa& isa : cpu::usable_isas()) {
    Bits want;
    for (int threads : {1, 1, 2, 3, 4, 7}) {
      Level level(isa, threads);
      Bits got;
      run(*level.stream, level.kernels, got);
      if (want.empty()) want = got;
      for (size_t i = 0; i < want.size(); ++i)
        CHECK_MESSAGE(got[i] == want[i], std::string(what), ", level ", std::string(isa.name), ", ",
                      std::string(name(DTypeOf<T>::value)), ", ", threads, " threads, output ", i);
    }
  }
}

template <class T>
void check_all() {
  check_same_bits<T>("norms", norms<T>);
  check_same_bits<T>("elements", elements<T>);
  check_same_bits<T>("tables", tables<T>);
  check_same_bits<T>("attention", attentions<T>);
  check_same_bits<T>("gemm", products<T>);
  check_same_bits<T>("double_gemm", double_products<T>);
}

}  // namespace

TEST_CASE("the thread count changes no bit, fp32") { check_all<float>(); }
TEST_CASE("the thread count changes no bit, bf16") { check_all<bf16>(); }
TEST_CASE("the thread count changes no bit, fp16") { check_all<f16>(); }

}  // namespace mtrain::testing
