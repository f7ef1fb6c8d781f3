// Names of c10/cuda that are all in one file here.
#pragma once
#include "cuda_runtime_api.h"
