#include "client/npy.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kernels/core/numeric.h"

namespace gemmd {
namespace {

std::string Preamble(int major, size_t header_bytes) {
  std::string start("\x93NUMPY", 6);
  start += static_cast<char>(major);
  start += '\0';
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i) {
    start += static_cast<char>(header_bytes >> (8 * i) & 0xff);
  }
  return start;
}

std::string FileOf(const std::string& dict, const std::string& data, int major = 1) {
  return Preamble(major, dict.size()) + dict + data;
}

std::string Dict(const std::string& descr, const std::string& shape,
                 const std::string& fortran = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }\n";
}

class NpyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = ::testing::TempDir() + "npy_test." + name + "." + std::to_string(getpid());
    std::filesystem::create_directory(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  std::string Write(const std::string& bytes) const {
    std::ofstream(Path("x.npy"), std::ios::binary) << bytes;
    return Path("x.npy");
  }
  StatusOr<NpyArray> Read(const std::string& bytes, NpyRank rank = NpyRank::kMatrix,
                          std::optional<DType> wanted = std::nullopt) const {
    return ReadNpy(Write(bytes), rank, wanted);
  }
  void ExpectRefused(const std::string& bytes, const std::string& why) const {
    const StatusOr<NpyArray> array = Read(bytes);
    EXPECT_EQ(array.status().code(), StatusCode::kInvalidArgument) << array.status().ToString();
    EXPECT_NE(array.status().message().find(why), std::string::npos)
        << array.status().message() << "\n  lacks: " << why;
    EXPECT_NE(array.status().message().find("x.npy"), std::string::npos);
  }

  std::string folder_;
};

template <typename T>
std::string Raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::vector<double> Values(const NpyArray& array) {
  std::vector<double> values;
  for (int64_t i = 0; i < array.bytes / SizeOf(array.type); ++i) {
    values.push_back(LoadElement(array.data.get(), array.type, i));
  }
  return values;
}

TEST_F(NpyTest, EveryVersionIsRead) {
  for (const int major : {1, 2, 3}) {
    const auto array = Read(FileOf(Dict("<f4", "(2, 1)"), Raw<float>({1, 2}), major));
    ASSERT_TRUE(array.ok()) << array.status().ToString();
    EXPECT_EQ(array->rows, 2);
    EXPECT_EQ(array->cols, 1);
    EXPECT_FALSE(array->has_batch);
    EXPECT_EQ(Values(*array), (std::vector<double>{1, 2}));
  }
}

TEST_F(NpyTest, TheDictionaryMayBeWrittenInAnyWayThatPythonReads) {
  const auto array =
      Read(FileOf("  {\"shape\":(1L,2),\n\"fortran_order\":False , 'descr':\"<f8\"}   \n",
                  Raw<double>({3, 4})));
  ASSERT_TRUE(array.ok()) << array.status().ToString();
  EXPECT_EQ(array->cols, 2);
  EXPECT_EQ(array->type, DType::kF64);
}

TEST_F(NpyTest, FortranOrderIsATransposedMatrixAndARearrangedBatch) {
  auto matrix = Read(FileOf(Dict("<f4", "(2, 3)", "True"), Raw<float>({1, 4, 2, 5, 3, 6})));
  ASSERT_TRUE(matrix.ok()) << matrix.status().ToString();
  EXPECT_TRUE(matrix->column_major);
  EXPECT_EQ(Values(*matrix), (std::vector<double>{1, 4, 2, 5, 3, 6}));
  ASSERT_TRUE(MakeRowMajor(&*matrix).ok());
  EXPECT_FALSE(matrix->column_major);
  EXPECT_EQ(Values(*matrix), (std::vector<double>{1, 2, 3, 4, 5, 6}));

  const auto batch =
      Read(FileOf(Dict("|i1", "(2, 1, 3)", "True"), Raw<int8_t>({1, 4, 2, 5, 3, 6})));
  ASSERT_TRUE(batch.ok()) << batch.status().ToString();
  EXPECT_FALSE(batch->column_major);
  EXPECT_EQ(Values(*batch), (std::vector<double>{1, 2, 3, 4, 5, 6}));
}

TEST_F(NpyTest, VectorsAreReadWhereTheyAreAskedFor) {
  for (const char* shape : {"(3,)", "(1, 3)", "(3, 1)"}) {
    const auto array = Read(FileOf(Dict("<f4", shape), Raw<float>({1, 2, 3})), NpyRank::kVector);
    ASSERT_TRUE(array.ok()) << shape << array.status().ToString();
    EXPECT_EQ(array->rows, 1);
    EXPECT_EQ(array->cols, 3);
  }
  const auto matrix =
      Read(FileOf(Dict("<f4", "(2, 2)"), Raw<float>({1, 2, 3, 4})), NpyRank::kVector);
  EXPECT_EQ(matrix.status().code(), StatusCode::kInvalidArgument);
}

TEST_F(NpyTest, RawBytesAreWhatTheCallerSays) {
  const std::string two = FileOf(Dict("<u2", "(1, 1)"), Raw<uint16_t>({0x3fc0}));
  EXPECT_FALSE(Read(two).ok());
  const auto bf16 = Read(two, NpyRank::kMatrix, DType::kBF16);
  ASSERT_TRUE(bf16.ok()) << bf16.status().ToString();
  EXPECT_EQ(Values(*bf16), std::vector<double>{1.5});
  const auto plain = Read(FileOf(Dict("<V2", "(1, 1)"), Raw<uint16_t>({0x3fc0})));
  ASSERT_TRUE(plain.ok()) << plain.status().ToString();
  EXPECT_EQ(plain->type, DType::kBF16);
  const std::string one = FileOf(Dict("|V1", "(1, 1)"), Raw<uint8_t>({0x3c}));
  EXPECT_FALSE(Read(one).ok());
  EXPECT_EQ(Values(*Read(one, NpyRank::kMatrix, DType::kF8E4M3)), std::vector<double>{1.5});
  EXPECT_EQ(Values(*Read(one, NpyRank::kMatrix, DType::kF8E5M2)), std::vector<double>{1.0});
}

TEST_F(NpyTest, ConversionRoundsOnce) {
  // Halfway between two halves plus a bit that rounding to fp32 first would lose.
  const double value = 1 + 0x1p-11 + 0x1p-40;
  const auto array =
      Read(FileOf(Dict("<f8", "(1, 1)"), Raw<double>({value})), NpyRank::kMatrix, DType::kF16);
  ASSERT_TRUE(array.ok()) << array.status().ToString();
  EXPECT_EQ(Values(*array), std::vector<double>{1 + 0x1p-10});
  EXPECT_EQ(array->bytes, 2);
}

TEST_F(NpyTest, IntegersBecomeFloatsAndNotTheOtherWay) {
  const auto widened =
      Read(FileOf(Dict("|i1", "(1, 2)"), Raw<int8_t>({-128, 3})), NpyRank::kMatrix, DType::kBF16);
  ASSERT_TRUE(widened.ok()) << widened.status().ToString();
  EXPECT_EQ(Values(*widened), (std::vector<double>{-128, 3}));
  const auto narrowed =
      Read(FileOf(Dict("<f4", "(1, 1)"), Raw<float>({1})), NpyRank::kMatrix, DType::kI8);
  EXPECT_EQ(narrowed.status().code(), StatusCode::kInvalidArgument);
}

TEST_F(NpyTest, WhatIsWrongIsNamed) {
  const std::string data(64, '\0');
  ExpectRefused("", "not a .npy file");
  ExpectRefused("PK\3\4 an archive, as numpy.savez writes it", "not a .npy file");
  ExpectRefused(std::string("\x93NUMPY\x04\x00\x10\x00 ", 11), "version 4.0");
  ExpectRefused(Preamble(2, 4).substr(0, 11), "header's length is missing");
  ExpectRefused(Preamble(1, 500) + "{", "header takes 510 bytes");
  ExpectRefused(Preamble(2, 0xffffffff), "header of 4294967295 bytes exceeds the limit of 65536");
  ExpectRefused(FileOf(Dict("<f4", "(2, 8)"), data.substr(1)), "takes 64 bytes after the header");
  ExpectRefused(FileOf(Dict("<f4", "(2, 8)"), data + "x"), "the file has 65");
  ExpectRefused(FileOf(Dict("<f4", "(16,)"), data), "shape (16,) is not a matrix");
  ExpectRefused(FileOf(Dict("<f4", "()"), data), "shape () is not a matrix");
  ExpectRefused(FileOf(Dict("<f4", "(1, 1, 1, 1)"), data), "is not a matrix");
  ExpectRefused(FileOf(Dict("<f4", "(-1, 4)"), data), "negative extent");
  ExpectRefused(FileOf(Dict("<f4", "(9223372036854775808, 1)"), data), "above the limit 2^63-1");
  ExpectRefused(FileOf(Dict("<f4", "(4294967296, 4294967296)"), data), "2^63-1 elements");
  ExpectRefused(FileOf(Dict("<f4", "(2147483648, 0)"), ""), "limit of 2147483647");
  ExpectRefused(FileOf(Dict(">f4", "(4, 4)"), data), "'>f4' is big-endian");
  ExpectRefused(FileOf(Dict("|O", "(2, 4)"), data), "Python objects");
  ExpectRefused(FileOf(Dict("<c8", "(2, 4)"), data), "'<c8'");
  ExpectRefused(FileOf(Dict("<i8", "(2, 4)"), data), "'<i8'");
  ExpectRefused(FileOf(Dict("|b1", "(8, 8)"), data), "'|b1'");
  ExpectRefused(FileOf("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (2, 8)}", data),
                "structured element type [('x', '<f4')]");
  ExpectRefused(FileOf("{'descr': '<f4', 'shape': (2, 8)}", data), "lacks the key 'fortran_order'");
  ExpectRefused(FileOf("{'descr': '<f4', 'descr': '<f4'}", data), "repeats the key 'descr'");
  ExpectRefused(FileOf("{'evil': 1}", data), "unknown key 'evil'");
  ExpectRefused(FileOf(Dict("<f4", "(2, 8)", "Maybe"), data), "neither True nor False");
  ExpectRefused(FileOf(Dict("<f4", "(2, 8)") + "x", data), "goes on after its dictionary");
}

TEST_F(NpyTest, UnreadableFilesGiveTheirPathAndTheSystemsReason) {
  const Status missing = ReadNpy(Path("none.npy"), NpyRank::kMatrix, std::nullopt).status();
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_NE(missing.message().find("none.npy: No such file or directory"), std::string::npos)
      << missing.message();
  const Status folder = ReadNpy(folder_, NpyRank::kMatrix, std::nullopt).status();
  EXPECT_EQ(folder.message(), folder_ + " is not a regular file");
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);  // nobody writes: must not wait for one
  EXPECT_EQ(ReadNpy(Path("pipe"), NpyRank::kMatrix, std::nullopt).status().code(),
            StatusCode::kInvalidArgument);
}

NpyArray Make(DType type, int64_t batch, int64_t rows, int64_t cols, bool has_batch) {
  NpyArray array;
  array.type = type;
  array.batch = batch;
  array.rows = rows;
  array.cols = cols;
  array.has_batch = has_batch;
  array.bytes = batch * rows * cols * SizeOf(type);
  array.data = std::make_unique<std::byte[]>(static_cast<size_t>(array.bytes));
  for (int64_t i = 0; i < batch * rows * cols; ++i) {
    StoreElement(array.data.get(), type, i, static_cast<double>(i % 50));
  }
  return array;
}

TEST_F(NpyTest, WhatIsWrittenReadsBack) {
  for (const DType type :
       {DType::kF16, DType::kBF16, DType::kF32, DType::kF64, DType::kI8, DType::kI32}) {
    for (const bool has_batch : {false, true}) {
      const NpyArray array = Make(type, has_batch ? 3 : 1, 5, 7, has_batch);
      ASSERT_TRUE(WriteNpy(Path("out.npy"), array).ok());
      const auto back = ReadNpy(Path("out.npy"), NpyRank::kMatrix, std::nullopt);
      ASSERT_TRUE(back.ok()) << back.status().ToString();
      EXPECT_EQ(back->type, type);
      EXPECT_EQ(back->has_batch, has_batch);
      EXPECT_EQ(back->batch, array.batch);
      EXPECT_EQ(Values(*back), Values(array));
    }
  }
}

TEST_F(NpyTest, AResultKeepsTheModeOfTheFileThatItReplaces) {
  const NpyArray array = Make(DType::kF32, 1, 2, 3, false);
  ASSERT_TRUE(WriteNpy(Path("kept.npy"), array).ok());
  for (const mode_t mode : {0600, 0640, 0444}) {
    ASSERT_EQ(chmod(Path("kept.npy").c_str(), mode), 0);
    ASSERT_TRUE(WriteNpy(Path("kept.npy"), array).ok());
    struct stat info = {};
    ASSERT_EQ(stat(Path("kept.npy").c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, mode);
  }
}

TEST_F(NpyTest, AStructuredTypeIsNamedWithoutTheRestOfTheHeader) {
  const Status status =
      ParseNpyHeader(FileOf("{'descr': [('x', '<f4')], 'shape': (2, 8), }", "")).status();
  EXPECT_NE(status.message().find("[('x', '<f4')] is not"), std::string::npos) << status.message();
}

TEST_F(NpyTest, WritingReplacesTheWholeFileOrNothingAndLeavesNoTemporary) {
  const NpyArray array = Make(DType::kF32, 1, 2, 2, false);
  Write(std::string(1000, 'x'));
  std::filesystem::create_symlink("x.npy", Path("link.npy"));
  ASSERT_TRUE(WriteNpy(Path("link.npy"), array).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(Path("link.npy")));
  EXPECT_EQ(std::filesystem::file_size(Path("x.npy")), 128U + 16U);
  EXPECT_EQ(WriteNpy(folder_, array).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteNpy("/dev/null", array).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(WriteNpy(Path("no/such.npy"), array).ToString(),
            "NOT_FOUND: cannot write " + Path("no/such.npy") + ": No such file or directory");
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_)) ++files;
  EXPECT_EQ(files, 2);
}

TEST_F(NpyTest, DataStartsOnAMultipleOf64) {
  for (const int64_t cols : {1, 10, 1000, 100000}) {
    ASSERT_TRUE(WriteNpy(Path("out.npy"), Make(DType::kI8, 1, 1, cols, false)).ok());
    EXPECT_EQ((static_cast<int64_t>(std::filesystem::file_size(Path("out.npy"))) - cols) % 64, 0);
  }
}

bool HaveNumpy() { return std::system("/usr/bin/python3 -c 'import numpy' >/dev/null 2>&1") == 0; }

TEST_F(NpyTest, NumpysFilesAreRead) {
  if (!HaveNumpy()) GTEST_SKIP() << "needs /usr/bin/python3 with numpy";
  const std::string script =
      "import numpy as np, sys\n"
      "import warnings; warnings.simplefilter('ignore')\n"
      "from numpy.lib import format as f\n"
      "d = sys.argv[1] + '/'\n"
      "x = np.arange(24).reshape(2, 3, 4)\n"
      "for t in ['f2', 'f4', 'f8', 'i1', 'i4']:\n"
      "  for v in [(1, 0), (2, 0), (3, 0)]:\n"
      "    for n, a in [('c', x), ('f', np.asfortranarray(x)), ('2f', np.asfortranarray(x[0]))]:\n"
      "      with open(d + t + n + str(v[0]), 'wb') as o:\n"
      "        f.write_array(o, a.astype(t, order='K'), version=v)\n"
      "np.save(d + 'big', x.astype('>f4')); np.save(d + 'struct', np.zeros((2, 2), 'f4,i4'))\n"
      "np.save(d + 'one', x.ravel()); np.save(d + 'zero', np.float32(1))\n"
      "np.save(d + 'object', np.array([[None]]))\n";
  std::ofstream(Path("write.py")) << script;
  ASSERT_EQ(std::system(("/usr/bin/python3 " + Path("write.py") + " " + folder_).c_str()), 0);
  std::vector<double> all(24);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<double>(i);
  for (const char* type : {"f2", "f4", "f8", "i1", "i4"}) {
    for (const char* version : {"1", "2", "3"}) {
      for (const char* order : {"c", "f", "2f"}) {
        const std::string name = std::string(type) + order + version;
        auto array = ReadNpy(Path(name), NpyRank::kMatrix, std::nullopt);
        ASSERT_TRUE(array.ok()) << name << ": " << array.status().ToString();
        EXPECT_EQ(array->column_major, order[0] == '2') << name;
        ASSERT_TRUE(MakeRowMajor(&*array).ok());
        EXPECT_EQ(Values(*array),
                  order[0] == '2' ? std::vector<double>(all.begin(), all.begin() + 12) : all)
            << name;
      }
    }
  }
  for (const char* name : {"big.npy", "struct.npy", "one.npy", "zero.npy", "object.npy"}) {
    EXPECT_EQ(ReadNpy(Path(name), NpyRank::kMatrix, std::nullopt).status().code(),
              StatusCode::kInvalidArgument)
        << name;
  }
}

TEST_F(NpyTest, NumpyReadsOurFiles) {
  if (!HaveNumpy()) GTEST_SKIP() << "needs /usr/bin/python3 with numpy";
  ASSERT_TRUE(WriteNpy(Path("f2.npy"), Make(DType::kF16, 1, 5, 7, false)).ok());
  ASSERT_TRUE(WriteNpy(Path("i4.npy"), Make(DType::kI32, 2, 5, 7, true)).ok());
  ASSERT_TRUE(WriteNpy(Path("bf16.npy"), Make(DType::kBF16, 1, 5, 7, false)).ok());
  std::ofstream(Path("read.py")) << "import numpy as np, sys\n"
                                    "d = sys.argv[1] + '/'\n"
                                    "x = np.arange(70) % 50\n"
                                    "a = np.load(d + 'f2.npy'); assert a.dtype == np.float16 and "
                                    "(a == x[:35].reshape(5, 7)).all()\n"
                                    "a = np.load(d + 'i4.npy'); assert a.dtype == np.int32 and (a "
                                    "== x.reshape(2, 5, 7)).all()\n"
                                    "a = np.load(d + 'bf16.npy'); assert a.dtype.itemsize == 2\n"
                                    "w = (a.view('u2').astype('u4') << 16).view('f4'); assert (w "
                                    "== x[:35].reshape(5, 7)).all()\n";
  EXPECT_EQ(std::system(("/usr/bin/python3 " + Path("read.py") + " " + folder_).c_str()), 0);
}

// Whatever the bytes, the answer is an array that the file's own size bears out, or a refusal.
TEST_F(NpyTest, DamagedFilesNeverCrashNorAllocateMoreThanTheyHold) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const std::string sources[] = {
      FileOf(Dict("<f4", "(2, 3)"), std::string(24, 'd')),
      FileOf(Dict("<V2", "(2, 3, 2)", "True"), std::string(24, 'd'), 2),
      FileOf(Dict("|i1", "(24, 1)", "True"), std::string(24, 'd'), 3),
  };
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = sources[below(3)];
    if (below(4) == 0) bytes.resize(below(bytes.size() + 1));
    for (size_t flips = below(4); flips > 0 && !bytes.empty(); --flips) {
      if (below(2) == 0) {
        char& byte = bytes[below(bytes.size())];
        byte = static_cast<char>(byte ^ (1 << below(8)));
      } else {
        bytes[below(bytes.size())] = "0123456789(),:{}'-<|L"[below(21)];
      }
    }
    auto array = Read(bytes, below(4) == 0 ? NpyRank::kVector : NpyRank::kMatrix);
    if (!array.ok()) {
      EXPECT_FALSE(array.status().message().empty());
      continue;
    }
    ++accepted;
    EXPECT_LT(array->bytes, static_cast<int64_t>(bytes.size()));
    EXPECT_TRUE(MakeRowMajor(&*array).ok());
    (void)Values(*array);
  }
  EXPECT_GT(accepted, 100);  // else the damage never reaches past the magic
}

}  // namespace
}  // namespace gemmd
